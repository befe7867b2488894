"""What every page is built on: context, navigation, language, formatting, masking."""
