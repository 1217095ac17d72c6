"""Trajectories of SWE-agent, in."""
