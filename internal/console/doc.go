// Package console serves the pages of the console and the data that they draw. It decides nothing: a Source answers
// each topic with the JSON that a verb of the command line prints.
//
//	browser ── GET /…  ──────────────► web (embedded files)
//	        ── GET /api/v1/stream ───► Source.Read, for each topic, again and again ─► events
//	        ── POST /api/v1/whatif ──► Source.WhatIf
//
// A console of one person listens on loopback. One in the cluster listens for other machines, over TLS, and each read
// is made with the token of who asks (Options.SignIn). A request must name the server in Host, which keeps pages of
// other sites out that let their name point to this machine. A page of another origin is refused by its Origin. Data
// need a token. It is in the fragment of the address that the user opens, or entered in the page, so it is in no
// request line and no log; the page keeps it in its tab.
package console
