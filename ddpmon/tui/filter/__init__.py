"""The filter's language: what a user types, what it means, and which ranks, hosts and findings it fits."""
