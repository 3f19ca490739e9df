"""The lane of AG-UI clients: `POST /ag-ui`."""
