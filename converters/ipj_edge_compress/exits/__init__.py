"""Early exits: heads, where a backbone is cut, joint training."""
