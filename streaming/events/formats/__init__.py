"""How invented changes are written as records: the formats that an upstream may have, by whole columns."""
