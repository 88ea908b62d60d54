"""The bodies of requests and responses. The names of classes and fields are the HTTP contract."""
