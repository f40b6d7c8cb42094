"""The methods: how they are defined, fitted to models, and compared."""
