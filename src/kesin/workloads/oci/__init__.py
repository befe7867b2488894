"""Offline conversions to Google Ads."""
