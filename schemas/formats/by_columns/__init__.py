"""Formats in JSON, read by whole columns (`schemas.formats.protocol.ColumnReader`)."""
