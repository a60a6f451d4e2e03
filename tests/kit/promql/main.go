// Asks Prometheus's own code: which rules of a file are at fault, and what expressions say of scrapes.
//
// Input and output are JSON on the standard streams; see monitoring.py, which runs it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/tsdb"
)

type scrape struct {
	AtMs int64  `json:"at_ms"`
	Text string `json:"text"`
}

type request struct {
	Rules   string   `json:"rules"`
	Scrapes []scrape `json:"scrapes"`
	Queries []string `json:"queries"`
	AtMs    int64    `json:"at_ms"`
}

type answer struct {
	Error  string   `json:"error"`
	Series []string `json:"series"`
}

func main() {
	var asked request
	must(json.NewDecoder(os.Stdin).Decode(&asked))
	faults := []string{}
	_, errs := rulefmt.Parse([]byte(asked.Rules), false)
	for _, err := range errs {
		faults = append(faults, err.Error())
	}
	folder, err := os.MkdirTemp("", "promql-")
	must(err)
	defer os.RemoveAll(folder)
	db := stored(folder, asked.Scrapes)
	defer db.Close()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute})
	answers := map[string]answer{}
	for _, query := range asked.Queries {
		answers[query] = evaluated(engine, db, query, time.UnixMilli(asked.AtMs))
	}
	must(json.NewEncoder(os.Stdout).Encode(map[string]any{"faults": faults, "answers": answers}))
}

func evaluated(engine *promql.Engine, db *tsdb.DB, query string, at time.Time) answer {
	prepared, err := engine.NewInstantQuery(context.Background(), db, nil, query, at)
	if err != nil {
		return answer{Error: err.Error()}
	}
	defer prepared.Close()
	result := prepared.Exec(context.Background())
	if result.Err != nil {
		return answer{Error: result.Err.Error()}
	}
	vector, err := result.Vector()
	if err != nil {
		return answer{Error: err.Error()}
	}
	series := []string{}
	for _, sample := range vector {
		series = append(series, sample.Metric.String())
	}
	return answer{Series: series}
}

func stored(folder string, scrapes []scrape) *tsdb.DB {
	db, err := tsdb.Open(folder, nil, nil, tsdb.DefaultOptions(), nil)
	must(err)
	for _, each := range scrapes {
		appender := db.Appender(context.Background())
		parser := textparse.NewPromParser([]byte(each.Text), labels.NewSymbolTable())
		for {
			entry, err := parser.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			must(err)
			if entry != textparse.EntrySeries {
				continue
			}
			_, _, value := parser.Series()
			var found labels.Labels
			parser.Labels(&found)
			found = labels.NewBuilder(found).Set("instance", "backfill:8080").Set("job", "backfill").Labels()
			_, err = appender.Append(0, found, each.AtMs, value)
			must(err)
		}
		must(appender.Commit())
	}
	return db
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
