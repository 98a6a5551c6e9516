// The client-side cache of rueidis against a server at a port: soon after another client was told that
// a write is done, no read of this one is older. Run by scripts/test-clients.sh, against Redis too.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

var ctx = context.Background()

// A client of the server; one that does not cache has no push connection.
func connect(options rueidis.ClientOption) rueidis.Client {
	options.InitAddress = []string{"127.0.0.1:" + os.Args[1]}
	client, err := rueidis.NewClient(options)
	check(err)
	return client
}

func check(err error) {
	if err != nil && !rueidis.IsRedisNil(err) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func text(result rueidis.RedisResult) string {
	value, err := result.ToString()
	check(err)
	return value
}

func main() {
	writer := connect(rueidis.ClientOption{DisableCache: true})
	modes := map[string]rueidis.ClientOption{
		"OPTIN":     {},
		"broadcast": {ClientTrackingOptions: []string{"PREFIX", "a", "PREFIX", "b", "BCAST"}},
	}
	for mode, options := range modes {
		check(writer.Do(ctx, writer.B().Flushall().Build()).Error())
		cached := connect(options)
		get := func(key string) string {
			return text(cached.DoCache(ctx, cached.B().Get().Key(key).Cache(), time.Minute))
		}
		hits := 0
		for n := 0; n < 300; n++ {
			key, value := "a"+strconv.Itoa(n%3), strconv.Itoa(n)
			get(key)
			check(writer.Do(ctx, writer.B().Set().Key(key).Value(value).Build()).Error())
			for deadline := time.Now().Add(5 * time.Second); get(key) != value; {
				if time.Now().After(deadline) {
					fmt.Fprintf(os.Stderr, "%s: %s is still %s and not %s\n", mode, key, get(key), value)
					os.Exit(1)
				}
			}
			again := cached.DoCache(ctx, cached.B().Get().Key(key).Cache(), time.Minute)
			if again.IsCacheHit() {
				hits++
			}
		}
		if hits < 290 {
			fmt.Fprintf(os.Stderr, "%s: %d of 300 reads were cached\n", mode, hits)
			os.Exit(1)
		}
		check(writer.Do(ctx, writer.B().Flushall().Build()).Error())
		for deadline := time.Now().Add(5 * time.Second); get("a0") != ""; {
			if time.Now().After(deadline) {
				fmt.Fprintf(os.Stderr, "%s: the cache outlives FLUSHALL\n", mode)
				os.Exit(1)
			}
		}
		cached.Close()
	}
	fmt.Println("rueidis: its client-side cache follows, in modes OPTIN and broadcast")
}
