// Package listing holds what an MCP server lists: its tools, prompts, resources
// and resource templates, as clients may see them.
//
// [Fit] repairs or drops listings that a client could refuse. A [Source] makes
// an [Offering] of fitted lists: one [Offer] for each entry, under the name that
// sessions see. [Pins] remember how each tool looked when it was first seen. A
// [Memory] keeps lists and pins in a file. A [View] is what one caller sees of all
// servers at one moment: lists, names, resources and templates are looked up in it.
//
// The package does no locking. An Offering and a View never change once they are
// made; the caller guards the variable that holds Pins.
package listing
