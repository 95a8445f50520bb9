"""RDTech UM25C."""
