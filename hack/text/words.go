package main

import (
	"regexp"
	"strings"
)

// unwanted are words for which the field has a standard term, and the form "is no X" for "is not an X".
var unwanted = regexp.MustCompile(
	`(?i)\b(told|tells|nobody|somebody|reckoned|hears|stay|stand|near|bury|judge|breathe|loose|turns|` +
		`seeker|spill|deal|deaf|nameless|surprised|breathes?|strangers?|refuge|graft|is no [a-z]+)\b`)

// phrases are constructions that Kubernetes' own documentation does not have: the actor is missing or comes last.
var phrases = regexp.MustCompile(`(?i)\b(of no use|of which (one|a part)\b|` +
	`for who (may|can|must|asks|reads|writes|gets)\b|` +
	`go(es)? on running|with no cluster|%d more [a-z]+s of gang|1 more [a-z]+s\b|` +
	`that are equal to one|, one of the two\b|(runs|does so|is (high|low|used|needed)) no more([.,:;"]|$))`)

// Names are read as their words: groupsTold, groups_told.
var camel = regexp.MustCompile(`([a-z0-9])([A-Z])`)

func words(file string, content []byte) []hit {
	if strings.HasPrefix(file, "hack/text/") {
		return nil // the list itself
	}
	var hits []hit
	for i, line := range strings.Split(string(content), "\n") {
		line = strings.ReplaceAll(camel.ReplaceAllString(line, "$1 $2"), "_", " ")
		for _, word := range unwanted.FindAllString(line, -1) {
			if strings.EqualFold(word, "is no longer") || word == "Is No Match" { // meta.IsNoMatchError
				continue
			}
			hits = append(hits, hit{file, i + 1, word})
		}
		for _, phrase := range phrases.FindAllString(line, -1) {
			hits = append(hits, hit{file, i + 1, phrase})
		}
	}
	return hits
}
