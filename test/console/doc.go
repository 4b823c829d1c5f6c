// Package console clicks through the pages of the console in Chromium: `make test-console`. It is a module of its own,
// as no program needs its browser protocol.
//
//	tenon up --demo ─► tenon console ─► Chromium: every page, in both languages, light and dark, 360 px to 4K
//
// A page fails the test that logs an error, asks another origin, or is wider than the window. PICTURES=FOLDER keeps a
// picture of each page.
package console
