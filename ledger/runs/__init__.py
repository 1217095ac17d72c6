"""How a run begins, streams and ends. Projecting it must not live here."""
