"""Can this host reach a learner, agree with it, and play its environment?"""

from vedette.doctor.examination import Examination, Finding

__all__ = ["Examination", "Finding"]
