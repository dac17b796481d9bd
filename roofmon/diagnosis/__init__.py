"""The troubleshooting checklist: rules by theme, each a function from a case to a finding.

Pure functions over a view or a snapshot, the same on a live session, a recording and an import.
"""

from roofmon.diagnosis.checklist import about, diagnose_kernel, diagnose_session
from roofmon.diagnosis.finding import Case, Finding

__all__ = ["Case", "Finding", "about", "diagnose_kernel", "diagnose_session"]
