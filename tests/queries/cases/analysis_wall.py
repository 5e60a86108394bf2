"""Two rows of a saved analysis, more time first."""

from querykit import Case

CASES = (
    Case(
        "analysis_wall",
        """
CREATE TABLE wall (gpu, row, wall_ns, wall_share);
INSERT INTO wall VALUES ('0:0', 'norm', 10, 0.25), ('0:0', 'idle', 30, 0.75);
""",
        """\
gpu,row,wall_ns,wall_share
0:0,idle,30,0.75
0:0,norm,10,0.25
""",
    ),
)
