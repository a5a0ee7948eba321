"""The same project with Ridge: one round, in closed form."""
