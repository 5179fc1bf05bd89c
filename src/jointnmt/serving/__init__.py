"""The server: trained models behind LibreTranslate's API and one of our own, over HTTP."""
