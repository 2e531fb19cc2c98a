"""The widgets of the dashboard."""
