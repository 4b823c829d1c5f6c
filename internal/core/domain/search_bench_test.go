package domain_test

import (
	"fmt"
	"testing"

	"github.com/tenon-project/tenon/internal/core/domain"
)

// BenchmarkDomains chooses the first domain for four members on 5,000 nodes.
func BenchmarkDomains(b *testing.B) {
	for name, rules := range map[string][]domain.Rule{
		"must":            {{Label: "block", Must: true}},
		"must and prefer": {{Layer: "block"}, {Layer: "spine", Must: true}},
	} {
		b.Run(name, func(b *testing.B) {
			sites := make([]domain.Site, 5000)
			for i := range sites {
				s := &sites[i]
				s.Name, s.Free = fmt.Sprint("n", i), []int64{int64(i % 8), 64, 64, 110, domain.Unlimited}
				for _, r := range rules {
					in := fmt.Sprint("spine-", i%50)
					if r.Layer == "block" {
						in += fmt.Sprint("/block-", i%1000)
					}
					s.In = append(s.In, in)
				}
			}
			g := &domain.Request{Members: []string{"a", "b", "c", "d"}, Min: 4, Rules: rules}
			d := domain.Demand{Each: []int64{2, 1, 0, 1, 1}, All: []int64{8, 4, 0, 4, 4}}
			b.ReportAllocs()
			for b.Loop() {
				domains, _ := g.Domains(sites, d)
				for range domains {
					break
				}
			}
		})
	}
}
