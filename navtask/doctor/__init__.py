"""The environment's doctor: examines a vectorised environment from outside and names its faults."""

from navtask.doctor.checks import CHECKS, examine
from navtask.doctor.finding import CRASHED, FAIL, PASS, UNKNOWN, Finding
from navtask.doctor.patient import Patient

__all__ = ["CHECKS", "CRASHED", "FAIL", "PASS", "UNKNOWN", "Finding", "Patient", "examine"]
