"""What logs in tables share, whatever database these lie in: how events lie in rows, and the jobs that read and move them.

A job awaits only its statements, in the SQL that databases share; the few that are not alike are given to it. What belongs
to one database lives in its own room.
"""
