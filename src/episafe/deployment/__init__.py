"""An agent in use: the session that deploys and learns, its journal, replay, checkpoints and audit."""
