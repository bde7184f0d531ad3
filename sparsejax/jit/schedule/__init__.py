"""Loop order, workspaces and conversions of a kernel."""
