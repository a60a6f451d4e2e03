"""Figures of measurements: printed, kept and drawn."""
