"""The store protocol and its embedded TCPStore."""
