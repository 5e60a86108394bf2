"""One path on two GPUs is one row."""

from querykit import Case

CASES = (
    Case(
        "analysis_ranges",
        """
CREATE TABLE ranges (gpu, kind, via, path, kernel_count, kernel_ns);
INSERT INTO ranges VALUES
    ('0:0', 'pushpop', 'launch', '["step"]', 1, 10), ('0:1', 'pushpop', 'launch', '["step"]', 2, 7);
""",
        """\
path,kind,via,kernel_count,kernel_ns
"[""step""]",pushpop,launch,3,17
""",
    ),
)
