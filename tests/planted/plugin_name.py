"""How a test run is told which bug to plant, without importing the plugin itself."""

PLUGIN = "tests.planted.plugin"
VARIABLE = "NEBIS_PLANTED_BUG"
