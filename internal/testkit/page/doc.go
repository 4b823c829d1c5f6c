// Package page reads the blocks of code on the pages of the documentation, for tests that apply or run what they show.
package page
