"""A session over HTTP, for programs in any language: `episafe serve`."""
