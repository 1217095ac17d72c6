"""What every format is made of: fields, blocks, payloads, histories, media. No format must be known here."""
