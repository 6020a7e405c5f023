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
		Package: "@hubspot/mcp-server", Version: "0.4.0", Tried: "2026-11-29",
		Reads: ".env of its directory",
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
		Package: "@modelcontextprotocol/server-puppeteer", Version: "2025.5.12", Tried: "2026-11-29",
		Keeps: "the page of its browser",
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
		Package: "@mui/mcp", Version: "0.1.6", Tried: "2026-11-29",
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
		Package: "@playwright/mcp", Version: "0.0.83", Tried: "2026-11-29",
		Roots: true, Files: true, Keeps: "the pages of its browser",
	},
	{
		Package: "@sentry/mcp-server", Version: "0.39.0", Tried: "2026-11-29",
		Env: []string{"SENTRY_ACCESS_TOKEN"},
	},
	{
		Package: "@sylphx/pdf-reader-mcp", Version: "2.4.0", Tried: "2026-11-29",
		Reads: "files by names relative to its directory", Files: true,
	},
	{
		Package: "@upstash/context7-mcp", Version: "4.1.1", Tried: "2026-11-29",
		Env: []string{"CONTEXT7_API_KEY"},
	},
	{
		Package: "airtable-mcp-server", Version: "1.14.0", Tried: "2026-11-29",
		Files: true,
	},
	{
		Package: "chrome-devtools-mcp", Version: "1.11.0", Tried: "2026-11-29",
		Roots: true, Files: true, Keeps: "the pages of its browser",
	},
	{
		Package: "exa-mcp-server", Version: "3.4.1", Tried: "2026-11-29",
		Env: []string{"EXA_API_KEY"},
	},
	{
		Package: "figma-developer-mcp", Version: "0.13.2", Tried: "2026-11-29",
		Reads: ".env of its directory", Files: true,
	},
	{
		Package: "firecrawl-mcp", Version: "3.26.0", Tried: "2026-11-29",
		Reads: ".env of its directory", Files: true,
	},
	{
		Package: "mcp-searxng", Version: "2.4.0", Tried: "2026-11-29",
		Env: []string{"SEARXNG_URL"},
	},
	{
		Package: "tavily-mcp", Version: "0.2.22", Tried: "2026-11-29",
		Reads: ".env of its directory",
	},
}
