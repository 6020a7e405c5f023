package servertable

// rows is the table, by the names of the packages.
var rows = []Row{
	{
		Package: "@antv/mcp-server-chart", Version: "0.9.10", Tried: "2026-11-29",
	},
	{
		Package: "@brave/brave-search-mcp-server", Version: "2.1.4", Tried: "2026-11-29",
		Reads: ".env of its directory",
	},
	{
		Package: "@eslint/mcp", Version: "0.3.13", Tried: "2026-11-29",
		Reads: "the project in its directory", Files: true,
	},
	{
		Package: "@modelcontextprotocol/server-brave-search", Version: "0.6.2", Tried: "2026-11-29",
		Keeps: "how often it was called",
	},
	{
		Package: "@modelcontextprotocol/server-everything", Version: "2026.8.31", Tried: "2026-11-29",
		Roots: true,
	},
	{
		Package: "@modelcontextprotocol/server-filesystem", Version: "2026.8.31", Tried: "2026-11-29",
		Reads: "the directories that it is given", Roots: true, Files: true,
	},
	{
		Package: "@modelcontextprotocol/server-github", Version: "2025.4.8", Tried: "2026-11-29",
		Env: []string{"GITHUB_PERSONAL_ACCESS_TOKEN"},
	},
	{
		Package: "@modelcontextprotocol/server-gitlab", Version: "2025.4.25", Tried: "2026-11-29",
		Env: []string{"GITLAB_PERSONAL_ACCESS_TOKEN"},
	},
	{
		Package: "@modelcontextprotocol/server-google-maps", Version: "0.6.2", Tried: "2026-11-29",
		Env: []string{"GOOGLE_MAPS_API_KEY"},
	},
	{
		Package: "@modelcontextprotocol/server-memory", Version: "2026.8.31", Tried: "2026-11-29",
		Env: []string{"MEMORY_FILE_PATH"},
	},
	{
		Package: "@modelcontextprotocol/server-sequential-thinking", Version: "2026.8.31", Tried: "2026-11-29",
		Keeps: "its thoughts",
	},
	{
		Package: "@modelcontextprotocol/server-slack", Version: "2025.4.25", Tried: "2026-11-29",
		Env: []string{"SLACK_BOT_TOKEN", "SLACK_TEAM_ID"},
	},
	{
		Package: "@notionhq/notion-mcp-server", Version: "2.5.2", Tried: "2026-11-29",
		Reads: "its directory",
	},
	{
		Package: "@perplexity-ai/mcp-server", Version: "1.2.1", Tried: "2026-11-29",
		Env: []string{"PERPLEXITY_API_KEY"},
	},
	{
		Package: "@sentry/mcp-server", Version: "0.39.0", Tried: "2026-11-29",
		Env: []string{"SENTRY_ACCESS_TOKEN"},
	},
}
