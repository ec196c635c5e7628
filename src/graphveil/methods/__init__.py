"""The methods of the paper: what each one spends, and how each one is trained."""
