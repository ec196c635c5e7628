"""What several test modules share: small fits, adjacent graphs, jobs of several processes, a service, a browser."""
