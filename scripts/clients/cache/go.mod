module cache

go 1.21

require (
	github.com/redis/rueidis v1.0.47
	golang.org/x/sys v0.24.0 // indirect
)
