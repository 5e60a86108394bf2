"""Two rows of a saved analysis, more kernel time first."""

from querykit import Case

CASES = (
    Case(
        "analysis_categories",
        """
CREATE TABLE categories (gpu, category, kernel_count, kernel_ns, kernel_share, wall_ns, wall_share, busy_ns);
INSERT INTO categories VALUES ('0:0', 'norm', 1, 10, 0.25, 10, 0.1, 10), ('0:0', 'cast', 2, 30, 0.75, 20, 0.2, 20);
""",
        """\
gpu,category,kernel_count,kernel_ns,kernel_share,wall_ns,wall_share
0:0,cast,2,30,0.75,20,0.2
0:0,norm,1,10,0.25,10,0.1
""",
    ),
)
