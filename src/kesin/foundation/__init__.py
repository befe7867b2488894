"""What every floor but the rules may use."""
