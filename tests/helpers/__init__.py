"""What tests share: odd processes, independent readers, and the capabilities a machine may lack."""
