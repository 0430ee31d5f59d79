"""What the gallery is made of: how pictures were made, verdicts, badges, and the pages that show them."""
