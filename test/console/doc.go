// Package console clicks through the pages of the console in Chromium: `make test-console`. It is a module of its own,
// as no program needs its browser protocol.
//
//	tenon up --demo ─► tenon console ─► Chromium: every page, in both languages, light and dark, 360 px to 4K
//
// A page fails the test that logs an error, asks another origin, or is wider than the window. The same holds for the
// pages of a large cluster that is generated. PICTURES=FOLDER keeps two pictures of each page, light and dark: those of
// docs/guide/console.md. IDLE=10m lets a page idle for ten minutes.
//
// Tests print how long something takes beside its budget, and fail only at ten times that.
package console
