"""The server: trained models behind LibreTranslate's API and a typed one, over HTTP."""
