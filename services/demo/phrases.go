package demo

import "strings"

// phrases are the shop's sentences in one language. Dish names and numbers are the same in all.
type phrases struct {
	stage                              map[Stage]string
	statusShort, statusLong            string
	due, withRider, arrived            string
	unknownOrder, whichOrder           string
	cancelCall, cancelTooLate          string
	allergens, noAllergens, diets      string
	hours, menu, orderOnSite           string
	person, welcome, greeting, unclear string
}

// phrasesFor picks the language of a locale such as de-DE (RFC 5646); English for any other.
func phrasesFor(locale string) phrases {
	language, _, _ := strings.Cut(strings.ToLower(locale), "-")
	if language == "de" {
		return german()
	}
	return english()
}

func english() phrases {
	return phrases{
		stage:         map[Stage]string{Cooking: "in the wok", OnItsWay: "on its way", Delivered: "delivered"},
		statusShort:   "Order %s is %s, due %s.",
		statusLong:    "Your order %s (%s) is %s.",
		due:           "It should be with you at %s.",
		withRider:     "%s is bringing it and should be with you at %s.",
		arrived:       "It was handed over at %s.",
		unknownOrder:  "I can't find an order %s. The number has four digits and is in the confirmation mail, such as 1042.",
		whichOrder:    "Which order should be cancelled? Please tell me its number, such as 1042.",
		cancelCall:    "Order %s is being cooked. For your safety I can't cancel it without knowing that it is yours: please call 030 555 0142 within the next ten minutes.",
		cancelTooLate: "Order %s is %s already, so it can't be cancelled any more. If something is wrong with it, call 030 555 0142 and we will put it right.",
		allergens:     "%s contains: %s.",
		noAllergens:   "%s has none of the fourteen major allergens.",
		diets:         "Vegetarian: %s. Without wheat: %s. Name a dish and I list its allergens; all are cooked in one kitchen, so traces are possible.",
		hours:         "We are open every day from 11:30 to 22:30; the kitchen closes at 22:00.",
		menu:          "Today we have:",
		orderOnSite:   "Orders are placed on our website for now; I can tell you about the menu, allergens, opening hours and your orders.",
		person:        "You reach us by phone at 030 555 0142, every day from 11:30 to 22:30.",
		welcome:       "You're welcome. Enjoy your noodles!",
		greeting:      "Hello, this is Noodle Bar. I can tell you where your order is, what is on the menu, what is in it, and when we are open.",
		unclear:       "I didn't get that. I can tell you where your order is, what is on the menu, what is in it, and when we are open.",
	}
}

func german() phrases {
	return phrases{
		stage:         map[Stage]string{Cooking: "in der Pfanne", OnItsWay: "unterwegs", Delivered: "zugestellt"},
		statusShort:   "Bestellung %s ist %s, Ankunft %s.",
		statusLong:    "Deine Bestellung %s (%s) ist %s.",
		due:           "Sie sollte um %s bei dir sein.",
		withRider:     "%s bringt sie und sollte um %s bei dir sein.",
		arrived:       "Sie wurde um %s übergeben.",
		unknownOrder:  "Eine Bestellung %s finde ich nicht. Die Nummer hat vier Ziffern und steht in der Bestätigung, etwa 1042.",
		whichOrder:    "Welche Bestellung soll storniert werden? Bitte nenne mir die Nummer, etwa 1042.",
		cancelCall:    "Bestellung %s wird gerade gekocht. Stornieren kann ich sie nur, wenn feststeht, dass es deine ist: Bitte ruf in den nächsten zehn Minuten unter 030 555 0142 an.",
		cancelTooLate: "Bestellung %s ist schon %s und kann nicht mehr storniert werden. Stimmt etwas nicht, ruf unter 030 555 0142 an, wir bringen das in Ordnung.",
		allergens:     "%s enthält: %s.",
		noAllergens:   "%s enthält keines der vierzehn Hauptallergene.",
		diets:         "Vegetarisch: %s. Ohne Weizen: %s. Nenne ein Gericht, dann sage ich dir seine Allergene; alles kommt aus einer Küche, Spuren sind möglich.",
		hours:         "Wir haben täglich von 11:30 bis 22:30 Uhr geöffnet, die Küche schließt um 22:00 Uhr.",
		menu:          "Heute gibt es:",
		orderOnSite:   "Bestellt wird vorerst auf unserer Website; ich helfe bei Karte, Allergenen, Öffnungszeiten und deinen Bestellungen.",
		person:        "Du erreichst uns täglich von 11:30 bis 22:30 Uhr unter 030 555 0142.",
		welcome:       "Gern! Lass es dir schmecken.",
		greeting:      "Hallo, hier ist Noodle Bar. Ich weiß, wo deine Bestellung ist, was auf der Karte steht, was drin ist und wann wir geöffnet haben.",
		unclear:       "Das habe ich nicht verstanden. Ich weiß, wo deine Bestellung ist, was auf der Karte steht, was drin ist und wann wir geöffnet haben.",
	}
}
