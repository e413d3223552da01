"""stub"""

from episafe2.certify.observation import Observation


class Hindsight(Observation): ...


class TraceProposer: ...
