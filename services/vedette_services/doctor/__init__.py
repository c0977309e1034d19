"""Can this host reach a learner, agree with it, and play its environment?"""

from vedette_services.doctor.examination import Examination
from vedette_services.doctor.findings import Finding

__all__ = ["Examination", "Finding"]
