"""Search and certificate: from cached exit outputs to a policy that is proven."""
