// Who is told what Perdure tells by webhook (docs/notifications.md): webhook ADDRESS, the secret in PERDURE_WEBHOOK_SECRET.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"

	"example.com/perdure/perdure"
	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

func main() {
	hook, err := webhooks.NewWebhook(os.Getenv("PERDURE_WEBHOOK_SECRET"))
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err == nil {
			err = hook.Verify(body, r.Header) // of Perdure, and of the last five minutes
		}
		var notice perdure.WebhookMessage
		if err != nil || json.Unmarshal(body, &notice) != nil {
			http.Error(w, "not from Perdure", http.StatusUnauthorized)
			return
		}
		fmt.Println(notice.Event, notice.DeliveryID, notice.Words) // one that is sent again has the same notice.ID
		w.WriteHeader(http.StatusNoContent)
	})
	log.Fatal(http.ListenAndServe(os.Args[1], nil))
}
