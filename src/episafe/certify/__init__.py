"""Certifiers: what a proposed policy must pass before it may be deployed. The proofs: docs/theory-certificates.md."""

from episafe.certify.base import Certificate, Certifier, Model
from episafe.certify.box import Box
from episafe.certify.fresh_data import FreshData
from episafe.certify.hindsight import Hindsight, strongest
from episafe.certify.observation import Observation
from episafe.certify.roomier import Roomier

__all__ = ["Box", "Certificate", "Certifier", "FreshData", "Hindsight", "Model", "Observation", "Roomier", "strongest"]
