"""Where leases live: `open_store(url)`, and the protocol every store keeps."""
